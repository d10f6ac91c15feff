-- Published: removes the events before a sequence number. It is idempotent.
--
-- ARGV[3] the sequence number
return {OK, now, call('XTRIM', EVENTS, 'MINID', ARGV[3])}
