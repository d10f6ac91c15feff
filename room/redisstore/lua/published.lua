-- Published: the events before a sequence number are removed. Again is harmless.
--
-- ARGV[3] the sequence number
return {OK, now, call('XTRIM', EVENTS, 'MINID', ARGV[3])}
