-- Quota bounds what a tenant has stored, by the rule of Stored.Refuse in bulk/quota.go: bulk/storetest
-- tests both. `limits` has for s:TENANT "ACTIONS JOBS BYTES"; 0 is no bound. Tenants count in `users`,
-- `jobs` and `bytes`.
--
-- refusal returns the name of the quota that more would exceed, and its value; nothing if there is none.
local function refusal(tenant, actions, jobs, bytes)
  local text = call('HGET', P .. 'limits', 's:' .. tenant)
  if not text then return end
  local t, more, at = tenantOf(tenant), {actions, jobs, bytes}, 0
  local stored, names = {t.users, t.jobs or 0, t.bytes or 0}, {'max_actions', 'max_jobs', 'max_bytes'}
  for most in text:gmatch('%d+') do
    at = at + 1
    if tonumber(most) > 0 and more[at] > 0 and stored[at] + more[at] > tonumber(most) then return names[at], most end
  end
end
