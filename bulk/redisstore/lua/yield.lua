-- Yield: a shard keeps no more slots of a target than it uses. What it answers is newer
-- than all that the hub has said, so that nothing of that is taken any more. It may come
-- again.
--
-- ARGV[3] the name of the limit   ARGV[4] the version of what the hub says
-- Answers what it keeps, or has in flight, and the version.
local name, seen = ARGV[3], tonumber(ARGV[4])
local g = targetOf(name:sub(3))
local used = g.flight
for kind, n in pairs(g.ready) do
  if n > 0 and not idle(kindOf(kind)) then used = used + n end
end
g.slots = math.min(g.slots, used)
g.version = math.max(g.version, seen)
g.version = g.version + 1 + g.version % 2
touch(name)
flush()
return {math.max(g.flight, g.slots), g.version}
