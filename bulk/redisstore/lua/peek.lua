-- Peek returns what policies need of leases that are about to be settled: their attempts, the
-- number of throttled jobs that wait at their limiter, and what has passed there in this
-- window. 0 attempts: the lease is unknown.
--
-- ARGV[3] and on: number and index
local answer = {}
for i = 3, #ARGV, 2 do
  local a = actionOf(ARGV[i])
  local text = a and call('HGET', P .. 'j:' .. ARGV[i], ARGV[i + 1])
  answer[#answer + 1] = text and unpackState(text).attempts or 0
  local m = a and get(limiterOf(a))
  answer[#answer + 1] = m and m.waiting or 0
  answer[#answer + 1] = a and tonumber(call('HGET', P .. 'tally:' .. window, a.tenant .. '\n' .. a.target .. '\np') or 0) or 0
end
return answer
