-- Import wake schedules jobs that have a due time or a deadline. It is idempotent: jobs that
-- have continued are left alone.
--
-- ARGV[3] the number   ARGV[4] and on: indexes
local number, indexes = ARGV[3], {}
for i = 4, #ARGV do indexes[#indexes + 1] = ARGV[i] end
local due, leases = {}, {}
for index, s in pairs(statesOf(number, indexes)) do
  local into = s.phase == ASIDE and due or s.phase == IN_FLIGHT and leases or {}
  into[#into + 1] = s.at
  into[#into + 1] = number .. ':' .. index
end
each('ZADD', P .. 'due', due)
each('ZADD', P .. 'leases', leases)
return 1
