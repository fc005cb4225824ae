-- What counters stand at, two numbers for each: of a bucket what is missing, of slots those taken, of a budget the sum;
-- then the part of a budget's sum that is reserved. KEYS: the counters. ARGV: for each its kind, two numbers and the number
-- of the period.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local out = {}
for i, key in ipairs(KEYS) do
  local at = (i - 1) * 4
  local kind, a, b = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local level, reserved = 0, 0
  if kind == 'b' then
    local kept = redis.call('HMGET', key, 'held', 'at')
    local filled = (now - (tonumber(kept[2]) or now)) / 1000000
    level = math.max(0, b - math.min(b, (tonumber(kept[1]) or b) + math.max(0, filled) * a))
  elseif kind == 's' then
    level = redis.call('ZCOUNT', key, '(' .. string.format('%.0f', now), '+inf')
  else
    local kept = redis.call('HMGET', key, 'period', 'sum', 'reserved')
    if tonumber(kept[1]) == tonumber(ARGV[at + 4]) then
      level, reserved = tonumber(kept[2]), tonumber(kept[3]) or 0
    end
  end
  out[2 * i - 1] = string.format('%.6f', level)
  out[2 * i] = string.format('%.6f', reserved)
end
return out
