-- Append adds payloads to an action. It is idempotent, as jobs that the action has are
-- skipped, except behind all jobs: a caller that gets no answer cannot know.
--
-- ARGV[3] the number   ARGV[4] how many jobs the caller has sent before; -1: as many as there are
-- ARGV[5] the maximum of jobs of an action   ARGV[6] the default of quotas   ARGV[7] and on: payloads
-- Returns the outcome, the number of jobs, and the status; for a quota its name, its value and the tenant.
local number, offset, most = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local a = actionOf(number)
if not a then return {'unknown', 0, ''} end
if a.status ~= 'CREATED' and a.open ~= 1 then return {'sealed', a.received, a.status} end
if offset == -1 then offset = a.received end
if offset < 0 or offset > a.received then return {'beyond', a.received, a.status} end
local first = 7 + a.received - offset
if first > #ARGV then return {'done', a.received, a.status} end
if a.received + #ARGV - first + 1 > most then return {'most', a.received, a.status} end
if a.jobs == 1 and outboxFull() then return {'full', a.received, a.status} end
count(a)
local jobs, bytes, largest = #ARGV - first + 1, 0, a.largest or 0
for i = first, #ARGV do
  local size = #ARGV[i]
  bytes = bytes + size
  if size > largest then largest = size end
end
local quota, value = refusal(a.tenant, ARGV[6], {0, jobs, bytes})
if quota then return {'quota', a.received, a.status, quota, value, a.tenant} end
keep(tenantOf(a.tenant), jobs, bytes)
touch('t:' .. a.tenant)
local index = a.received
while first <= #ARGV do
  local page = math.floor(index / PAGE)
  local last = math.min(#ARGV, first + page * PAGE + PAGE - 1 - index, first + CHUNK - 1)
  call('RPUSH', P .. 'p:' .. number .. ':' .. page, unpack(ARGV, first, last))
  index = index + last - first + 1
  first = last + 1
end
a.received, a.bytes = index, a.bytes + bytes
if a.largest then a.largest = largest end
touch('a:' .. number)
flush()
return {'done', a.received, a.status}
