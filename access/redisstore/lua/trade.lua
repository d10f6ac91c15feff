-- Keeps in the hash KEYS[1] what the instance ARGV[1] tells the others, ARGV[2], "" for nothing, and returns what they have told in
-- the last ARGV[3] milliseconds. The hash ends with the last of it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local told = redis.call('HGETALL', KEYS[1])
local others = {}
for i = 1, #told, 2 do
  local at, text = string.match(told[i + 1], '^(%d+) (.*)$')
  if told[i] == ARGV[1] then
    -- it is replaced below
  elseif now - at > tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[1], told[i])
  else
    others[#others + 1] = text
  end
end
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%d ', now) .. ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return others
