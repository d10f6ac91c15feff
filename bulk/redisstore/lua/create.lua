-- Create stores a new action, under a number that no other action has. It is idempotent: a
-- repeated call finds the action.
--
-- ARGV[3] the number   ARGV[4] the action   ARGV[5] its spec
local number = ARGV[3]
if actionOf(number) then return {now, 0} end
if outboxFull() then return {now, 2} end
local a = cjson.decode(ARGV[4])
a.created = now
if a.open == 1 then a.entered = now end
call('SET', P .. 'x:' .. number, ARGV[5])
put('a:' .. number, a)
enter(a)
announceAction('io.sluice.bulk.action.created', number, a)
flush()
return {now, 1}
