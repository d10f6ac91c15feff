-- Status: the counts of visitors, taken from the lines themselves. It changes nothing.
local called = call('ZCARD', CALLED)
local answer = {
  OK, now,
  call('ZCARD', LINE) + call('ZCARD', ASIDE) - called, called + call('ZCARD', INSIDE), called,
}
for _, value in ipairs(call('HMGET', KEYS[1], 'number', 'admitted', 'missed', 'departed', 'expired', 'dropped', 'tick')) do
  answer[#answer + 1] = tonumber(value or 0)
end
return answer
