-- Yield makes a shard give up the slots of a target that it does not use. The version of its
-- answer is newer than all versions of the hub, so that the shard adopts none of those. It is
-- safe to repeat.
--
-- ARGV[3] the name of the limit   ARGV[4] the hub's version
-- Returns the slots that it keeps, or the jobs in flight if they are more, and the version.
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
