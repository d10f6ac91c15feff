-- Import state changes the state of an import: from "staging" to "entering", and from there
-- to "done". It is idempotent.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the id of the import   ARGV[2] the new state
-- Returns 1; 0 if the import is in another state; 2 if the store has actions now.
local H, config = KEYS[1], KEYS[1] .. 'config'
local had = redis.call('HMGET', config, 'import', 'import_state')
if had[1] ~= ARGV[1] then return 0 end
if had[2] == ARGV[2] then return 1 end
if ARGV[2] == 'entering' then
  if had[2] ~= 'staging' then return 0 end
  if redis.call('HLEN', H .. 'ids') > 0 then return 2 end
elseif had[2] ~= 'entering' then
  return 0
end
redis.call('HSET', config, 'import_state', ARGV[2])
return 1
