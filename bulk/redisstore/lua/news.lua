-- News returns what has changed in the settings since a revision, and which changes not every
-- shard may know. The list `changes` has the last ones, as "REVISION-BEFORE REVISION NAME". It is
-- no chain where an earlier version of sluice has set something, or writes were lost: then all
-- settings are returned, and all are to be sent.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the revision that the caller has
-- Returns the revision; 1 if every shard knows it; 1 if the settings are all, 0 if they are those
-- that have changed; names and values of settings; and, unless it is not known what the shards
-- lack, the revisions that they may have, and the names of what has changed since the first.
local H = KEYS[1]
local known = redis.call('HMGET', H .. 'settings', 'revision', 'pushed')
local revision, pushed = known[1] or '0', known[2] or ''

-- since returns the revisions from an old one to the last before the present one, and the names
-- of what has changed in between; nothing if that is not known.
local function since(old)
  local revisions, names, upTo, at = {}, {}, revision, 0
  while upTo ~= old do
    at = at - 1
    local before, after, name = (redis.call('LINDEX', H .. 'changes', at) or ''):match('^(%d+) (%d+) (.+)$')
    if after ~= upTo then return end
    revisions[-at], names[-at], upTo = before, name, before
  end
  return revisions, names
end

local values, all = {}, 0
local revisions, names = since(ARGV[1])
if not revisions then
  values, all = redis.call('HGETALL', H .. 'settings'), 1
elseif #names > 0 then
  for i, value in ipairs(redis.call('HMGET', H .. 'settings', unpack(names))) do
    values[2 * i - 1], values[2 * i] = names[i], value
  end
end
revisions, names = since(pushed)
return {tonumber(revision), pushed == revision and 1 or 0, all, values, revisions or {}, names or {}}
