-- Keep sets how many events may wait; with 0 no events are kept.
--
-- ARGV[3] the number
shard.most = tonumber(ARGV[3])
touch('shard')
flush()
return 1
