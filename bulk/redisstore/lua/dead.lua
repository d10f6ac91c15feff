-- Dead returns dead letters of an action, by index, until their payloads reach a size.
--
-- ARGV[3] the number   ARGV[4] the least index   ARGV[5] the maximum of letters
-- ARGV[6] the bytes of payloads with which the answer ends
-- Returns index and letter of each.
local number, left, answer = ARGV[3], tonumber(ARGV[6]), {}
for _, index in ipairs(call('ZRANGEBYSCORE', P .. 'dz:' .. number, ARGV[4], '+inf', 'LIMIT', 0, tonumber(ARGV[5]))) do
  local letter = call('HGET', P .. 'd:' .. number, index)
  if letter then
    answer[#answer + 1], answer[#answer + 2] = index, letter
    left = left - (#letter - 14 - struct.unpack('>I4', letter, 11)) -- see finish in ended.lua
    if left <= 0 then break end
  end
end
return answer
