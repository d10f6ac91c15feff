-- Import begin reserves numbers that no other action has, for an image to be staged. It is
-- idempotent. A store that has actions takes no image.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the id of the import   ARGV[2] its source   ARGV[3] the time when it begins
-- ARGV[4] the highest number of its actions   ARGV[5] the maximum of shards
-- ARGV[6] 1: discard the data staged by another import
-- Returns the import's state, or the reason of a refusal, "others" or "unfinished"; the
-- number of actions or the source of the other import; and the difference between the
-- sequence numbers of its actions and their old numbers.
local H, id, highest, shards = KEYS[1], ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local config = H .. 'config'
local had = redis.call('HMGET', config, 'import', 'import_state', 'import_from', 'import_offset', 'import_sequence', 'import_base')
local state = had[2]
if had[1] == id and state ~= 'staging' then return {state, had[3], had[4]} end
if state == 'entering' then return {'unfinished', had[3], '0'} end
local others = redis.call('HLEN', H .. 'ids')
if others > 0 then return {'others', string.format('%d', others), '0'} end
if state == 'staging' and had[1] ~= id and ARGV[6] ~= '1' then return {'unfinished', had[3], '0'} end

-- Leases contain the number that the action had in the image. Such a number stands for the
-- action of the image as long as no action here had it: none is below the maximum of shards.
local sequence = tonumber(redis.call('GET', H .. 'sequence') or 0)
local base = sequence
if state == 'staging' and sequence == tonumber(had[5]) then base = tonumber(had[6]) end
local offset = math.max(base, math.ceil(highest / shards))
local known = highest
if base > 0 then known = math.min(highest, shards - 1) end
sequence = math.max(sequence, offset + highest)
redis.call('SET', H .. 'sequence', string.format('%d', sequence))
redis.call('HSET', config, 'import', id, 'import_state', 'staging', 'import_from', ARGV[2], 'import_begun', ARGV[3],
  'import_offset', string.format('%d', offset), 'import_sequence', string.format('%d', sequence),
  'import_base', string.format('%d', base), 'import_known', string.format('%d', known))
return {'staging', '', string.format('%d', offset)}
