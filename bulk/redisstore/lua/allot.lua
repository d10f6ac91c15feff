-- Allot gives a shard its part of limits that all shards share: at most what the shard wants
-- in total, and what other shards do not have. A part only grows, so the script is
-- idempotent.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the revision   ARGV[2] the shard   ARGV[3] how long windows are kept, in ms
-- ARGV[4] requests: name, window, wanted, allowed. With the window -1 a request is for slots,
-- and adds the number that the shard has, or has in flight, and its version. Targets come before
-- what all share, and slots before rates: what one limit excludes must take no part of the
-- next from others, and is subtracted once.
-- Returns the part of each limit and, for slots, the version; nothing if the revision is old.
local H, shard = KEYS[1], ARGV[2]
local settings = redis.call('HMGET', H .. 'settings', 'revision', 'pushed')
if (settings[1] or '0') ~= ARGV[1] or (settings[2] or '0') ~= ARGV[1] then return {} end
local answer = {}
local lacks, lack = {}, 0 -- what is missing: of each target, and of all targets
for _, r in ipairs(cjson.decode(ARGV[4])) do
  local name, window, wanted, allowed = r[1], r[2], r[3], r[4]
  local slots = window == -1
  local key = H .. (slots and 'slots:' .. name or string.format('allot:%s:%d', name, window))
  local given, mine, version = 0, 0, 0
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i] == shard then
      mine = tonumber(all[i + 1])
    elseif all[i] == 'v' .. shard then
      version = tonumber(all[i + 1])
    elseif all[i]:sub(1, 1) ~= 'v' then
      given = given + all[i + 1]
    end
  end
  -- The hub may not know of slots that a shard has given up. The shard gives its changes odd
  -- versions, and the hub even ones, so that neither mistakes the other's change for its own.
  -- Within one version a shard has fewer only: jobs have landed whose flight counted as slots
  -- when the limit was changed. They may be more than the limit allows now, and are free again.
  if slots and (r[6] > version or r[6] == version and r[5] < mine) then
    mine, version = r[5], r[6]
    redis.call('HSET', key, shard, mine, 'v' .. shard, version)
  end
  wanted = wanted - (name == 'all' and lack or lacks[name] or 0)
  local next = math.max(mine, math.min(wanted, allowed - given))
  if wanted > next then
    lacks[name] = (lacks[name] or 0) + wanted - next
    lack = lack + wanted - next
  end
  if slots and next > mine then
    version = version + 2 - version % 2
    redis.call('HSET', key, shard, next, 'v' .. shard, version)
  elseif next > mine then
    redis.call('HSET', key, shard, next)
    redis.call('PEXPIRE', key, ARGV[3])
  end
  answer[#answer + 1], answer[#answer + 2] = next, version
end
return answer
