-- The id of the sequence that a ModelInfer message belongs to: its parameter sequence_id. HAProxy
-- itself can find a field of a message by its number, but not the entry of a map by its key. In JSON
-- it finds the parameter, but knows no number beyond 2^53.
-- Only requests to models that keep sequences are read.

-- A varint at `at`: its value and where it ends, nothing if it is not all there.
local function varint(data, at)
    local value, shift = 0, 0
    while shift < 70 do
        local byte = data:byte(at)
        if byte == nil then return nil end
        value = value | ((byte & 0x7f) << shift)
        at = at + 1
        if byte < 0x80 then return value, at end
        shift = shift + 7
    end
    return nil
end

-- The field at `at`: its number, its value (an integer, or text) and where it ends.
local function field(data, at)
    local tag, length, value
    tag, at = varint(data, at)
    if tag == nil then return nil end
    local number, kind = tag >> 3, tag & 7
    if kind == 0 then
        value, at = varint(data, at)
        if value == nil then return nil end
        return number, value, at
    elseif kind == 1 then
        return number, nil, at + 8
    elseif kind == 5 then
        return number, nil, at + 4
    elseif kind ~= 2 then
        return nil
    end
    length, at = varint(data, at)
    if length == nil or length < 0 or at + length - 1 > #data then return nil end
    return number, data:sub(at, at + length - 1), at + length
end

-- What a map entry of parameters says, if it is that of sequence_id.
local function id_in(entry)
    local at, key, parameter = 1, nil, nil
    while at <= #entry do
        local number, value, stop = field(entry, at)
        if number == nil then return nil end
        if number == 1 then key = value elseif number == 2 then parameter = value end
        at = stop
    end
    if key ~= "sequence_id" or type(parameter) ~= "string" then return nil end
    local number, value = field(parameter, 1)
    if number == 2 or number == 3 then return tostring(value) end  -- int64_param, string_param
    return nil
end

-- A name in quotes is no part of a text, in which they would be escaped.
core.register_fetches("json_id", function(txn)
    local body = txn.f:req_body()
    local id = body and body:match('"sequence_id"%s*:%s*(%d+)')
    if id then return id end  -- a nil would be taken for false, which is a value
end)

-- "-" for a message that has none: its place will refuse it. Nothing if that cannot be known.
core.register_fetches("sequence_id", function(txn)
    local body = txn.f:req_body()
    if body == nil or body:byte(1) ~= 0 then return end  -- no message, or a compressed one
    local at = 6  -- after gRPC's prefix
    while at <= #body do
        local number, value, stop = field(body, at)
        if number == nil then return end
        if number == 4 and type(value) == "string" then
            local id = id_in(value)
            if id ~= nil then return id end
        end
        at = stop
    end
    return "-"
end)
