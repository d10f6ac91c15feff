-- Look returns what has changed since a sequence number.
--
-- ARGV[3] the number; 0 asks for all live things   ARGV[4] about how many things
-- Returns: the time; the number up to which the answer goes; 1 if there is more; 1 if the
-- caller must start over, because too many things have ended since, or the number is above
-- the shard's; the throttled limiters of the window; the outbox; the revision of settings; names
-- and values of things; the names of ended things; and the run id of the server. With another
-- run id, the newest writes may be lost, so the caller must start over, too.
local since, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local names = call('ZRANGEBYSCORE', P .. 'changed', '(' .. since, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
local upTo, more = shard.seq, 0
if #names == 2 * most then
  -- Things that changed together are returned together.
  local last = names[#names]
  upTo, more = tonumber(last), 1
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'changed', last, last)) do
    names[#names + 1] = name
    names[#names + 1] = last
  end
end
local things, keys = {}, {}
for i = 1, #names, 2 do keys[#keys + 1] = P .. names[i] end
for i = 1, #keys, CHUNK do
  local last = math.min(i + CHUNK - 1, #keys)
  local values = call('MGET', unpack(keys, i, last))
  for n = i, last do
    if values[n - i + 1] then
      things[#things + 1] = names[2 * n - 1]
      things[#things + 1] = values[n - i + 1]
    end
  end
end
local function lasts(name) return name:sub(1, 2) == 't:' or name:sub(1, 2) == 'g:' end
local ended = {}
local left = call('ZRANGEBYSCORE', P .. 'gone', '(' .. since, upTo)
for i = 1, #left, CHUNK do
  local last = math.min(i + CHUNK - 1, #left)
  local scores = call('ZMSCORE', P .. 'changed', unpack(left, i, last))
  for n = i, last do
    -- A thing with a score is live again under its old name. A caller that starts from 0 has
    -- nothing that could end.
    if not scores[n - i + 1] and (since > 0 or lasts(left[n])) then ended[#ended + 1] = left[n] end
  end
end
for _, name in ipairs(ended) do
  -- The attempts started by a tenant or on a target still count in this window.
  local value = lasts(name) and call('GET', P .. name)
  if value then
    things[#things + 1] = name
    things[#things + 1] = value
  end
end
local oldest = call('LINDEX', P .. 'events', 0)
return {
  now, upTo, more, since > 0 and (since < shard.forgot or since > shard.seq) and 1 or 0, call('HGETALL', P .. 'throttled:' .. window),
  {call('LLEN', P .. 'events'), oldest and tonumber(oldest:match('^%d+ (%d+) ')) or 0},
  tonumber(call('HGET', P .. 'limits', 'revision') or 0), things, ended,
  call('INFO', 'server'):match('run_id:(%w+)'),
}
