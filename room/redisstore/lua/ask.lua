-- Ask: where visitors are, after noting that each asked. It may come again if its
-- answer was lost: it then finds who claimed inside.
--
-- ARGV[3] 1: who is called claims   ARGV[4] the pass's ttl, in ms   ARGV[5] 1: passes slide
-- ARGV[6] and on: numbers
local claim, ttl, sliding = ARGV[3] == '1', tonumber(ARGV[4]), ARGV[5] == '1'
local answer = {OK, now}
for i = 6, #ARGV do
  asked(ARGV[i], claim, ttl, sliding)
  placeOf(answer, ARGV[i])
end
return answer
