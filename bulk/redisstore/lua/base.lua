-- Base begins every script on a shard: the time, and the shard's data.
--
-- KEYS[1] begins the names of all keys of the shard, so they have its hash tag. It is no key, and
-- neither is KEYS[2]: so a cluster refuses every script while the slot moves.
-- ARGV[1] the time, in ms; "" is the server's
-- ARGV[2] the length of a window, in ms
--
-- Small things (the shard, an action, a tenant, a target, a limiter) are one JSON object
-- each. A script reads an object once, changes it, and writes it once, in flush. Changed
-- objects get the shard's next sequence number, so that instances can ask what has changed
-- since.
local call = redis.call
local P = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local WINDOW = tonumber(ARGV[2])
local window = math.floor(now / WINDOW)

local PAGE = 1024 -- jobs whose payloads share a key
local CHUNK = 1000 -- maximum of arguments of one command
local GONE = 10000 -- maximum of ended things whose end is remembered
local LASTING = 2 * WINDOW + 60000 -- how long limits count after the last action has ended

local held, touched, gone = {}, {}, {}

local function get(name)
  local found = held[name]
  if found == nil then
    local text = call('GET', P .. name)
    found = text and cjson.decode(text) or false
    held[name] = found
  end
  return found or nil
end

local function touch(name) touched[name] = true end

local function put(name, value)
  held[name] = value
  touched[name] = true
  return value
end

local shard = get('shard')
if not shard then return redis.error_reply('NOSHARD there is no ' .. P .. 'shard') end

-- leave removes a thing from the live things. Its key is kept for ttl, or for good.
local function leave(name, ttl)
  touch(name)
  gone[name] = ttl or 0
end

-- unused reports whether a thing is a tenant or a target without a live action, or a limiter
-- without waiting jobs.
local function unused(thing) return (thing.users or thing.waiting or 1) <= 0 end

local function flush()
  if not next(touched) then return end
  shard.seq = shard.seq + 1
  held.shard = shard
  touched.shard = true
  local values, changes, ended = {}, {}, {}
  for name in pairs(touched) do
    if held[name] then
      values[#values + 1] = P .. name
      values[#values + 1] = cjson.encode(held[name])
      if unused(held[name]) then leave(name, LASTING) end
    end
    local into = gone[name] and ended or changes
    into[#into + 1] = shard.seq
    into[#into + 1] = name
  end
  if #ended > 0 then
    for i = 2, #ended, 2 do call('ZREM', P .. 'changed', ended[i]) end
    for i = 1, #ended, CHUNK do call('ZADD', P .. 'gone', unpack(ended, i, math.min(i + CHUNK - 1, #ended))) end
    local over = call('ZCARD', P .. 'gone') - GONE
    if over > 0 then
      local last = call('ZRANGE', P .. 'gone', over - 1, over - 1, 'WITHSCORES')
      shard.forgot = tonumber(last[2])
      call('ZREMRANGEBYSCORE', P .. 'gone', '-inf', last[2])
      for i = 1, #values, 2 do
        if values[i] == P .. 'shard' then values[i + 1] = cjson.encode(shard) end
      end
    end
  end
  for i = 1, #values, CHUNK do call('MSET', unpack(values, i, math.min(i + CHUNK - 1, #values))) end
  for i = 1, #changes, CHUNK do call('ZADD', P .. 'changed', unpack(changes, i, math.min(i + CHUNK - 1, #changes))) end
  for name, ttl in pairs(gone) do
    if ttl > 0 then call('PEXPIRE', P .. name, ttl) end
  end
end

-- each calls a command with a long list of arguments, in chunks.
local function each(command, key, list)
  for i = 1, #list, CHUNK do call(command, key, unpack(list, i, math.min(i + CHUNK - 1, #list))) end
end
