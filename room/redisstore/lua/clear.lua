-- Clear: all active visitors are gone, ordered by when they would have ended, and then
-- the line advances. It takes a thousand at a time; the room's hash records that it is in
-- progress, so that nobody is called in between and an expire finishes it if the caller
-- does not. If an answer is lost, a repeated call continues.
--
-- ARGV[11] tick; not 0: nobody is called here   ARGV[12] 1: begin; 0: go on, if it has not ended
if ARGV[12] == '0' and room.clearing == 0 then return {OK, now, 0} end
local MAX_CLEAR = 1000
local list = ending('+inf', MAX_CLEAR)
for _, visitor in ipairs(list) do depart(visitor.number, REVOKED) end
local more = #list == MAX_CLEAR
if more ~= (room.clearing == 1) then set('clearing', more and 1 or 0) end
if not more then callNow(tonumber(ARGV[11])) end
save()
return {OK, now, more and 1 or 0}
