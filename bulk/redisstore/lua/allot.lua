-- Allot: what a shard is given of limits that all shards share: at most what it wants
-- in all, and what the others were not given. It only grows, so that it may come again.
--
-- KEYS[1]  begins the names of all keys of the hub
-- ARGV[1] the revision   ARGV[2] the shard   ARGV[3] how long windows are kept, in ms
-- ARGV[4] requests: name, window, wanted, allowed; with the window -1 they are of slots,
-- and say how many the shard has, or has in flight, as of which version. Slots come before
-- rates of targets, and these before the rate of all: what cannot be had of a target is
-- not taken of the others, who would miss it.
-- Answers what it has of each and, of slots, the version; nothing if the revision is old.
local H, shard = KEYS[1], ARGV[2]
local settings = redis.call('HMGET', H .. 'settings', 'revision', 'pushed')
if (settings[1] or '0') ~= ARGV[1] or (settings[2] or '0') ~= ARGV[1] then return {} end
local answer = {}
local lacks, lack = {}, 0 -- of targets, and of all of them
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
  -- Slots that a shard has given up may not be known here. It makes odd versions of what it
  -- has, the hub even ones: neither takes for its own what the other has made at the time.
  if slots and r[6] > version then
    mine, version = r[5], r[6]
    redis.call('HSET', key, shard, mine, 'v' .. shard, version)
  end
  wanted = wanted - (name == 'all' and lack or lacks[name] or 0)
  local next = math.max(mine, math.min(wanted, allowed - given))
  if wanted > next then
    lacks[name] = (lacks[name] or 0) + wanted - next
    lack = lack + wanted - next
  end
  if slots and (next > mine or next > r[5] and given + next <= allowed) then
    -- What the shard has not got, or was held for jobs that have landed, is given anew.
    version = version + 2 - version % 2
    redis.call('HSET', key, shard, next, 'v' .. shard, version)
  elseif next > mine then
    redis.call('HSET', key, shard, next)
    redis.call('PEXPIRE', key, ARGV[3])
  end
  answer[#answer + 1], answer[#answer + 2] = next, version
end
return answer
