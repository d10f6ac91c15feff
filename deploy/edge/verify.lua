-- Verifies passes of a room where the request is, as verify.js does, for nginx with LuaJIT: its
-- scripts in JavaScript have no Ed25519, and the OpenSSL that nginx is linked with has. A pass that
-- is not believed is for the gate to judge, so a verifier refuses nobody.
local ffi = require "ffi"

ffi.cdef [[
typedef struct evp_pkey_st EVP_PKEY;
typedef struct evp_md_ctx_st EVP_MD_CTX;
EVP_PKEY *EVP_PKEY_new_raw_public_key(int type, void *engine, const unsigned char *key, size_t length);
void EVP_PKEY_free(EVP_PKEY *key);
EVP_MD_CTX *EVP_MD_CTX_new(void);
void EVP_MD_CTX_free(EVP_MD_CTX *context);
int EVP_DigestVerifyInit(EVP_MD_CTX *context, void *, const void *, void *, EVP_PKEY *key);
int EVP_DigestVerify(EVP_MD_CTX *context, const unsigned char *signature, size_t, const unsigned char *text, size_t);
]]

local ED25519 = 1087
local believed_for = 30 -- seconds: a pass with less left goes to the gate, which renews it
local keys_every = 10   -- seconds between two requests for keys
local max_pass = 2048   -- bytes

local M = {}
local keys, read, tried = {}, -math.huge, -math.huge

local function decode(text)
    return ngx.decode_base64((text:gsub("%-", "+"):gsub("_", "/")) .. ("="):rep(-#text % 4))
end

-- The keys come from the location /.sluice/keys of nginx.conf. They are objects without objects in them.
local function read_keys(now)
    tried = now
    local ok, answer = pcall(ngx.location.capture, "/.sluice/keys")
    if not ok or answer.status ~= 200 or answer.truncated then
        return -- the keys that are there last for keys_for, and then the gate decides
    end
    local found = {}
    for object in answer.body:gmatch("{[^{}]*}") do
        local kid, x = object:match('"kid":%s*"([^"]+)"'), decode(object:match('"x":%s*"([^"]+)"') or "")
        if kid and x and #x == 32 and object:find('"crv":%s*"Ed25519"') then
            local key = ffi.C.EVP_PKEY_new_raw_public_key(ED25519, nil, x, #x)
            found[kid] = key ~= nil and ffi.gc(key, ffi.C.EVP_PKEY_free) or nil
        end
    end
    keys, read = found, now
end

-- Anybody can make up a kid, so an unknown one is looked for rarely.
local function key_of(kid, now, keys_for)
    if (now - read >= keys_for or not keys[kid]) and now - tried >= math.min(keys_every, keys_for) then
        read_keys(now)
    end
    return now - read < keys_for and keys[kid] or nil
end

local function signed(key, text, signature)
    local context = ffi.gc(ffi.C.EVP_MD_CTX_new(), ffi.C.EVP_MD_CTX_free)
    return ffi.C.EVP_DigestVerifyInit(context, nil, nil, nil, key) == 1
        and ffi.C.EVP_DigestVerify(context, signature, #signature, text, #text) == 1
end

-- The pass of the Cookie header, if there is one and its slot is taken: a visitor who has come in
-- just now has the cookie of the line too, and has to show up at the gate.
local function pass_of(header, room)
    local values = {}
    for part in header:gmatch("[^;]+") do
        local name, value = part:match("^%s*([^=]-)%s*=%s*(.-)%s*$")
        if name then
            values[name] = values[name] or {}
            table.insert(values[name], value)
        end
    end
    local function of(name)
        return values["__Host-" .. name] or values[name] or {}
    end
    local passes = of("sluice_pass_" .. room)
    return #passes == 1 and #of("sluice_line_" .. room) == 0 and passes[1] or nil
end

-- believed returns the visitor of the request's pass, or nil. Options are those of verify.js: room,
-- proven and keys_for.
function M.believed(options)
    local cookies = ngx.req.get_headers()["Cookie"] or ""
    local pass = type(cookies) == "string" and pass_of(cookies, options.room)
    if not pass or #pass > max_pass then
        return nil
    end
    local header, payload, signature = pass:match("^([%w_-]+)%.([%w_-]+)%.([%w_-]+)$")
    local kid = header and (decode(header) or ""):match('"kid":"([^"]+)"')
    local now = ngx.now()
    local key = kid and key_of(kid, now, options.keys_for or 60)
    if not key or not signed(key, header .. "." .. payload, decode(signature) or "") then
        return nil
    end
    -- The room has signed it: no text in it needs an escape.
    local claims = decode(payload) or ""
    local expires = tonumber(claims:match('"exp":([%d.]+)'))
    local good = claims:find('"iss":"sluice"', 1, true) and claims:match('"room":"([^"]*)"') == options.room
        and expires and expires - now > believed_for
        and not claims:find('"client":', 1, true) -- only the gate can compare it
        and (not options.proven or claims:find('"proven":true', 1, true))
    return good and claims:match('"sub":"(%d+)"') or nil
end

return M
