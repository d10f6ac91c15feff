-- counts returns the counts of visitors, as in status.lua: taken from the lines themselves.
local function counts(answer)
  local called = call('ZCARD', CALLED)
  local n = #answer
  answer[n + 1] = call('ZCARD', LINE) + call('ZCARD', ASIDE) - called
  answer[n + 2] = called + call('ZCARD', INSIDE)
  answer[n + 3] = called
  for i, value in ipairs(call('HMGET', KEYS[1], 'number', 'admitted', 'missed', 'departed', 'expired', 'dropped', 'tick')) do
    answer[n + 3 + i] = tonumber(value or 0)
  end
  answer[n + 11] = call('XLEN', EVENTS)
  return answer
end
