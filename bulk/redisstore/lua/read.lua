-- Read returns the present action, and the time; "" if there is no action.
--
-- ARGV[3] the number
local number = ARGV[3]
local text = call('GET', P .. 'a:' .. number)
if not text then return {now, ''} end
return {now, text, call('GET', P .. 'x:' .. number) or '', call('GET', P .. 'z:' .. number) or '', call('GET', P .. 'v:' .. number) or ''}
