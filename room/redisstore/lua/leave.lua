-- Leave: a visitor is gone, and the line advances. It is idempotent: a repeated call
-- finds the visitor gone and does nothing.
--
-- ARGV[11] tick; not 0: nobody is called here   ARGV[12] the number   ARGV[13] the reason
-- ARGV[14] the fingerprint
if not fits(ARGV[12], ARGV[14]) then return stranger({OK, now}) end
local answer = {OK, now}
if placeOf(answer, ARGV[12]) == GONE then return answer end
depart(ARGV[12], tonumber(ARGV[13]))
callNow(tonumber(ARGV[11]))
save()
return answer
