-- Import tell moves up to 500 staged events into the outbox, in order. It is safe to repeat.
--
-- Returns the number of moved events.
local page = call('LRANGE', P .. 'import', 0, 499)
for i, entry in ipairs(page) do
  shard.event = shard.event + 1
  page[i] = string.format('%d ', shard.event) .. entry
end
if #page > 0 then
  each('RPUSH', P .. 'events', page)
  call('LTRIM', P .. 'import', #page, -1)
  touch('shard')
  flush()
end
return #page
