-- Gives the ownership of a name to one holder for ttl; answers 1 if the holder has it.
-- It is idempotent.
--
-- KEYS[1] the ownership: "end holder"
-- ARGV[1] milliseconds to add to the server's clock   ARGV[2] holder   ARGV[3] ttl in ms, 0: give back
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local ttl = tonumber(ARGV[3])
local ends, holder = (call('GET', KEYS[1]) or ''):match('^(%d+) (.*)$')
local free = not ends or tonumber(ends) <= now
if not free and holder ~= ARGV[2] then return 0 end
if ttl > 0 then
  call('SET', KEYS[1], string.format('%d %s', now + ttl, ARGV[2]), 'PX', ttl)
elseif not free then
  call('DEL', KEYS[1])
end
return 1
