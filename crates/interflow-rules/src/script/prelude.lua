-- What scripts find beside the flow: ways to end it, header fields, and library functions that count what they do.
local inner = ...
local next_match = inner.next_match
-- Tables that were JSON arrays, so that an empty one is written as one.
inner.arrays = setmetatable({}, { __mode = 'k' })

function answer(a) a.kind = 'answer'; return a end
function deny(reason) return { kind = 'deny', reason = reason } end
function drop() return { kind = 'drop' } end

-- Finalizers run where nothing can end them; functions that close a variable run after the budget is spent.
local setmeta, rawget, rawset, getmeta, type, tostring, pairs = setmetatable, rawget, rawset, getmetatable, type, tostring, pairs
function setmetatable(t, m)
  if type(m) == 'table' then
    if rawget(m, '__gc') ~= nil then error("a metatable with '__gc' is not available here", 2) end
    if rawget(m, '__close') ~= nil then error("a metatable with '__close' is not available here", 2) end
  end
  return setmeta(t, m)
end

function string.gmatch(s, pattern, init)
  local at, last = init or 1, nil
  local function go(e, ...)
    if e == nil then
      at = #s + 2
      return nil
    end
    at, last = e + 1, e
    return ...
  end
  if type(s) ~= 'string' then s = string.format('%d', s) end
  if at < 0 then at = at + #s + 1; if at < 1 then at = 1 end elseif at == 0 then at = 1 end
  return function()
    if at > #s + 1 then return nil end
    return go(next_match(s, pattern, at, last))
  end
end

local function plain(t, name)
  if type(t) == 'table' and getmeta(t) ~= nil then
    error("table." .. name .. " takes a table without a metatable here", 3)
  end
end
for _, name in ipairs { 'insert', 'remove', 'concat', 'unpack' } do
  local real = table[name]
  table[name] = function(t, ...) plain(t, name); return real(t, ...) end
end

function table.move(a, f, e, t, b)
  b = b or a
  if e >= f then
    if t > e or t <= f or a ~= b then
      for i = 0, e - f do b[t + i] = a[f + i] end
    else
      for i = e - f, 0, -1 do b[t + i] = a[f + i] end
    end
  end
  return b
end

-- A heap sort: however wrong the comparison is, it ends.
function table.sort(t, less)
  less = less or function(a, b) return a < b end
  local n = #t
  local function sift(root, last)
    local moved = t[root]
    while root * 2 <= last do
      local child = root * 2
      if child < last and less(t[child], t[child + 1]) then child = child + 1 end
      if not less(moved, t[child]) then break end
      t[root] = t[child]
      root = child
    end
    t[root] = moved
  end
  for i = n // 2, 1, -1 do sift(i, n) end
  for last = n, 2, -1 do
    t[1], t[last] = t[last], t[1]
    sift(1, last - 1)
  end
end

-- Header fields: by name the first value; all values with get_all; pairs goes over every field in its order. A field is its
-- name in lower case, its value, and the name as the script wrote it.
local LIST = {}
local methods = {}

local function values(v)
  if type(v) ~= 'table' then return { tostring(v) } end
  local all = {}
  for i = 1, #v do all[i] = tostring(v[i]) end
  return all
end

local function change(h, name, new)
  local old, list, put, written = rawget(h, LIST), {}, false, tostring(name)
  name = written:lower()
  for i = 1, #old do
    if old[i][1] ~= name then
      list[#list + 1] = old[i]
    elseif not put then
      put = true
      for j = 1, #new do list[#list + 1] = { name, new[j], written } end
    end
  end
  if not put then for j = 1, #new do list[#list + 1] = { name, new[j], written } end end
  rawset(h, LIST, list)
end

function methods.get_all(h, name)
  local all, list = {}, rawget(h, LIST)
  name = tostring(name):lower()
  for i = 1, #list do if list[i][1] == name then all[#all + 1] = list[i][2] end end
  return all
end

function methods.add(h, name, value)
  local list = rawget(h, LIST)
  list[#list + 1] = { tostring(name):lower(), tostring(value), tostring(name) }
end

local meta = { __metatable = 'headers' }
function meta.__index(h, name)
  if methods[name] then return methods[name] end
  local list = rawget(h, LIST)
  name = tostring(name):lower()
  for i = 1, #list do if list[i][1] == name then return list[i][2] end end
end
function meta.__newindex(h, name, value)
  change(h, name, value == nil and {} or values(value))
end
function meta.__pairs(h)
  local list, i = rawget(h, LIST), 0
  return function()
    i = i + 1
    if list[i] then return list[i][1], list[i][2] end
  end
end

function inner.headers(list)
  return setmeta({ [LIST] = list }, meta)
end

-- The fields of such a table, or of any other that a script put in its place.
function inner.fields(h)
  if type(h) ~= 'table' then return {} end
  local list = rawget(h, LIST)
  if list then return list end
  list = {}
  for name, value in pairs(h) do
    local all = values(value)
    for i = 1, #all do list[#list + 1] = { tostring(name), all[i] } end
  end
  return list
end
