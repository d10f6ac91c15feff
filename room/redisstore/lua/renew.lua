-- Renew: a fixed pass lasts ttl from now, a bounded number of times. If the answer is
-- lost, a repeated call counts as another renewal. The rule is Renewable in
-- room/calling.go; storetest/rules.go tests both.
--
-- ARGV[3] the number   ARGV[4] the pass's ttl, in ms   ARGV[5] 1: passes slide
-- ARGV[6] how often a pass may be renewed   ARGV[7] the fingerprint
local number, status = ARGV[3], OK
if not fits(number, ARGV[7]) then return stranger({OK, now}) end
local member = memberOf(number)
if call('ZSCORE', INSIDE, member) then
  local since, tick, renewals, byLot = visitOf(number)
  if ARGV[5] == '1' or renewals >= tonumber(ARGV[6]) then
    status = NOT_RENEWABLE
  else
    keepVisit(number, since, tick, renewals + 1, byLot)
    call('ZADD', INSIDE, now + tonumber(ARGV[4]), member)
  end
end
local answer = {status, now}
placeOf(answer, number)
return answer
