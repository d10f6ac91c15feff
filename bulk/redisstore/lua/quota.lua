-- Quota bounds what a tenant has stored, by the rule of Stored.Refuse in bulk/quota.go: bulk/storetest
-- tests both. Quotas are "ACTIONS JOBS BYTES", 0 for none: `limits` has those of a tenant for s:TENANT, and
-- callers say what holds where there is none. Tenants count in `users`, `jobs` and `bytes`.
local QUOTAS = {'max_actions', 'max_jobs', 'max_bytes'}

local function quotasOf(text)
  local actions, jobs, bytes = text:match('^(%d+) (%d+) (%d+)$')
  return {tonumber(actions), tonumber(jobs), tonumber(bytes)}
end

-- refusal returns the name of the quota that more would exceed, and its value; nothing if there is none.
local function refusal(tenant, default, more)
  local t, own, other = tenantOf(tenant), quotasOf(call('HGET', P .. 'limits', 's:' .. tenant) or '0 0 0'), quotasOf(default)
  for i, stored in ipairs({t.users, t.jobs or 0, t.bytes or 0}) do
    local most = own[i] > 0 and own[i] or other[i]
    if most > 0 and more[i] > 0 and stored + more[i] > most then return QUOTAS[i], string.format('%d', most) end
  end
end
