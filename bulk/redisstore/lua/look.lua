-- Look: what has changed since a sequence number.
--
-- ARGV[3] the number; 0 is everything that lives   ARGV[4] about how many things
-- Answers: the time; the number up to which this is; 1 if there is more; 1 if too much
-- has ended since to say what, or there was never such a number, so that one must begin
-- again; the throttled of the window,
-- the outbox; the revision of settings; names and what they are, and the names of what has
-- ended; and which run of which server this is: another one may have lost the newest
-- writes, so that one must begin again too.
local since, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local names = call('ZRANGEBYSCORE', P .. 'changed', '(' .. since, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
local upTo, more = shard.seq, 0
if #names == 2 * most then
  -- Things that changed together are told together.
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
    -- What has a score is back, under the name that it had before. Who begins knows of
    -- nothing that could end.
    if not scores[n - i + 1] and (since > 0 or lasts(left[n])) then ended[#ended + 1] = left[n] end
  end
end
for _, name in ipairs(ended) do
  -- What a tenant or a target has started still counts in this window.
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
