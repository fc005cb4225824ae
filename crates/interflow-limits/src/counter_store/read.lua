-- What counters stand at: of a bucket what is missing, of slots those taken, of a budget the sum. KEYS: the counters.
-- ARGV: for each its kind, two numbers and the number of the period.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local out = {}
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 4
  local kind, a, b = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local level = 0
  if kind == 'b' then
    local kept = redis.call('HMGET', key, 'held', 'at')
    local filled = (now - (tonumber(kept[2]) or now)) / 1000000
    level = math.max(0, b - math.min(b, (tonumber(kept[1]) or b) + math.max(0, filled) * a))
  elseif kind == 's' then
    level = redis.call('ZCOUNT', key, '(' .. string.format('%.0f', now), '+inf')
  else
    local kept = redis.call('HMGET', key, 'period', 'sum')
    level = tonumber(kept[1]) == tonumber(ARGV[at + 4]) and tonumber(kept[2]) or 0
  end
  out[i] = string.format('%.6f', level)
end
return out
