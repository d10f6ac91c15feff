-- Yield makes a shard give up the slots of a limit that it does not use. The version of its
-- answer is newer than all versions of the hub, so that the shard adopts none of those. It is
-- safe to repeat.
--
-- ARGV[3] terms, empty   ARGV[4] the name of the limit   ARGV[5] the hub's version
-- Returns the slots that it keeps, or the jobs in flight if they are more, and the version.
local name, seen = ARGV[4], tonumber(ARGV[5])
local e, flight = counterOf(name), flightUnder(name)
e.slots = math.min(e.slots or 0, flight + readyUnder(name))
e.version = math.max(e.version or 0, seen)
e.version = e.version + 1 + e.version % 2
touch(name == 'all' and 'shard' or name)
flush()
return {math.max(flight, e.slots), e.version}
