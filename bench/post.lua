-- wrk script: POSTs prepared requests in turn and writes what wrk counted as JSON.
--
-- BENCH_FOLDER holds N.path, N.headers ("Name: value" lines) and N.body, N from 1 on. A body that
-- holds BENCH_ID_MARK, or a header that does, gets another random number of the same length there
-- for each request, or always BENCH_CONSTANT_ID.

local folder = os.getenv("BENCH_FOLDER")
local mark = os.getenv("BENCH_ID_MARK") or ""
local constant_id = os.getenv("BENCH_CONSTANT_ID") or ""
local requests = {}
local turn = 0

local function read(name)
  local file = io.open(folder .. "/" .. name, "rb")
  if not file then return nil end
  local content = file:read("*a")
  file:close()
  return content
end

local function load_request(number)
  local path = read(number .. ".path")
  if not path then return nil end
  local headers = {}
  for line in read(number .. ".headers"):gmatch("[^\n]+") do
    local name, value = line:match("^([^:]+): (.*)$")
    headers[name] = value
  end
  local whole = wrk.format("POST", path, headers, read(number .. ".body"))
  local from, to
  if mark ~= "" then from, to = whole:find(mark, 1, true) end
  if not from then
    return { constant = whole }
  end
  return { before = whole:sub(1, from - 1), after = whole:sub(to + 1) }
end

function init(args)
  math.randomseed(os.time())
  local number = 1
  while true do
    local prepared = load_request(number)
    if not prepared then break end
    requests[number] = prepared
    number = number + 1
  end
end

function request()
  turn = turn % #requests + 1
  local prepared = requests[turn]
  if prepared.constant then return prepared.constant end
  local id = string.format("%06d%06d", math.random(0, 999999), math.random(0, 999999))
  if constant_id ~= "" then id = constant_id end
  return prepared.before .. id .. prepared.after
end

function done(summary, latency, all)
  local errors = summary.errors
  local bad = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  local file = assert(io.open(folder .. "/result.json", "w"))
  file:write(string.format(
    '{"requests":%d,"bad":%d,"bytes":%d,"seconds":%.6f,"p50_us":%.0f,"p99_us":%.0f}',
    summary.requests, bad, summary.bytes, summary.duration / 1e6,
    latency:percentile(50), latency:percentile(99)))
  file:close()
end
