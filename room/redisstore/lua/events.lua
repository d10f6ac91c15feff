-- Events: the first events after a sequence number, as entries of the stream. It
-- changes nothing.
--
-- ARGV[3] the sequence number   ARGV[4] how many at most
return {OK, now, call('XRANGE', EVENTS, '(' .. ARGV[3], '+', 'COUNT', ARGV[4])}
