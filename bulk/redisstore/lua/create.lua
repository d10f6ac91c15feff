-- Create stores a new action, under a number that no other action has. It is idempotent: a
-- repeated call finds the action. A number that was refused by a quota is refused for good, so that its
-- id can be dropped: other calls with the id may have the number.
--
-- ARGV[3] the number   ARGV[4] the action   ARGV[5] its spec   ARGV[6] the default of quotas
-- Returns the outcome; for a quota, its name and its value.
local REFUSED = 60000 -- longer than any call takes
local number = ARGV[3]
if actionOf(number) then return {'exists', '', ''} end
local a = cjson.decode(ARGV[4])
local before = call('GET', P .. 'n:' .. number)
local quota, most = refusal(a.tenant, ARGV[6], {1, 0, 0})
if before then quota, most = before:match('^(%S+) (%d+)$') end
if quota then
  if not before then call('SET', P .. 'n:' .. number, quota .. ' ' .. most, 'PX', REFUSED) end
  return {'quota', quota, most}
end
if outboxFull() then return {'full', '', ''} end
a.created = now
if a.open == 1 then a.entered = now end
call('SET', P .. 'x:' .. number, ARGV[5])
put('a:' .. number, a)
enter(a)
announceAction('io.sluice.bulk.action.created', number, a)
flush()
return {'done', '', ''}
