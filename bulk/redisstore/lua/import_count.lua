-- Import count, for staging: counts what is staged of some pages of an action, and in total.
--
-- ARGV[3] the number   ARGV[4] the first page   ARGV[5] the page after the last
-- Returns, for the pages: payloads, succeeded jobs, other finished jobs; in total: states,
-- outcomes, dead letters, indexed dead letters, runs that wait in front, kept results.
local number = ARGV[3]
local payloads, succeeded, others = 0, 0, 0
for page = tonumber(ARGV[4]), tonumber(ARGV[5]) - 1 do
  payloads = payloads + call('LLEN', P .. 'p:' .. number .. ':' .. page)
  local finals = call('GET', P .. 'f:' .. number .. ':' .. page) or ''
  local _, high = finals:gsub('[\128-\255]', '')
  local _, none = finals:gsub('%z', '')
  succeeded, others = succeeded + high, others + #finals - high - none
end
return {
  payloads, succeeded, others, call('HLEN', P .. 'j:' .. number), call('LLEN', P .. 'o:' .. number),
  call('HLEN', P .. 'd:' .. number), call('ZCARD', P .. 'dz:' .. number), call('LLEN', P .. 'b:' .. number),
  call('HLEN', P .. 'w:' .. number),
}
