-- Asks a gate of Sluice whether a request may go on, as "http-request lua.sluice".
local check = "http://127.0.0.1:8000/.sluice/check"

-- Headers that belong to a connection or to a body, and those by which the gate is told
-- which request is meant.
local own = {
    ["connection"] = true, ["content-length"] = true, ["transfer-encoding"] = true, ["expect"] = true, ["te"] = true,
    ["x-original-uri"] = true, ["x-original-url"] = true, ["x-original-method"] = true,
}

local function first(values)
    for _, value in pairs(values or {}) do
        return value
    end
end

-- What does not belong to a connection, with lists that begin with 1.
local function copy(headers)
    local copied = {}
    for name, values in pairs(headers or {}) do
        if not own[name:lower()] then
            copied[name] = {}
            for _, value in pairs(values) do
                table.insert(copied[name], value)
            end
        end
    end
    return copied
end

core.register_action("sluice", { "http-req" }, function(txn)
    local headers = copy(txn.http:req_get_headers())
    headers["x-forwarded-method"] = { txn.f:method() }
    headers["x-forwarded-uri"] = { txn.f:pathq() }
    headers["x-forwarded-host"] = headers["host"]
    local answer = core.httpclient():get { url = check, headers = headers }
    if answer == nil or answer.status == nil or answer.status < 200 then
        -- The gate does not answer: nobody gets in.
        txn:done(txn:reply { status = 503, headers = { ["retry-after"] = { "5" } } })
    elseif answer.status ~= 200 then
        txn:done(txn:reply { status = answer.status, headers = copy(answer.headers), body = answer.body })
    else
        for _, name in ipairs { "sluice-pass", "sluice-visitor", "sluice-room" } do
            txn.http:req_del_header(name)
            local value = first(answer.headers[name])
            if value then
                txn.http:req_set_header(name, value)
            end
        end
        for n = 1, 3 do
            local cookie = first(answer.headers["sluice-set-cookie-" .. n])
            if cookie then
                txn:set_var("txn.sluice_cookie_" .. n, cookie)
            end
        end
    end
end)
