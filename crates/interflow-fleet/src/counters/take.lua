-- Takes from all counters, or from none. KEYS: the lease's state, then the counters. ARGV: lease, microseconds of a
-- lease, milliseconds for which its state is kept, then for each counter its kind (b bucket, s slots, d and m budgets of
-- a day and a month), two numbers, the cost, and what a budget must have left.
-- Answers {0}, or {place of the counter that refuses, microseconds to wait, 1 if only the reservations of requests in
-- progress prevent it}.

-- The answer to an earlier call was lost: what it took is not taken again. A lease that has ended takes nothing.
if redis.call('EXISTS', KEYS[1]) == 1 then return {0} end

local t = redis.call('TIME')
local second = tonumber(t[1])
local now = second * 1000000 + tonumber(t[2])

local day = math.floor(second / 86400)
local function period_of(kind)
  if kind == 'd' then return day, (day + 1) * 86400 end
  local month, d = month_of(day), day + 1
  while month_of(d) == month do d = d + 1 end
  return month, d * 86400
end

local function exact(n) return string.format('%.6f', n) end

local held, reserved = {}, {}
for i = 1, #KEYS - 1 do
  local key = KEYS[i + 1]
  local at = 3 + (i - 1) * 5
  local kind, a, b, cost = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  if kind == 'b' then
    local kept = redis.call('HMGET', key, 'held', 'at')
    local filled = (now - (tonumber(kept[2]) or now)) / 1000000
    held[i] = math.min(b, (tonumber(kept[1]) or b) + math.max(0, filled) * a)
    local needed = math.min(cost, b)
    if held[i] + 1e-6 < needed then
      return {i, exact(math.ceil((needed - held[i]) / a * 1000000)), 0}
    end
  elseif kind == 's' then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if redis.call('ZCARD', key) >= a then return {i, '1000000', 0} end
  else
    local number, ends = period_of(kind)
    local kept = redis.call('HMGET', key, 'period', 'sum', 'reserved')
    local current = tonumber(kept[1]) == number
    held[i] = current and tonumber(kept[2]) or 0
    reserved[i] = current and tonumber(kept[3]) or 0
    local used, least = math.max(0, held[i] - reserved[i]), tonumber(ARGV[at + 5])
    if used >= a or used + least > a then return {i, exact(ends * 1000000 - now), 0} end
    -- A request that takes nothing does not wait for others.
    if least > 0 and held[i] + least > a then return {i, '1000000', 1} end
  end
end

for i = 1, #KEYS - 1 do
  local key = KEYS[i + 1]
  local at = 3 + (i - 1) * 5
  local kind, a, b, cost = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  if kind == 'b' then
    redis.call('HSET', key, 'held', exact(held[i] - cost), 'at', string.format('%.0f', now))
    redis.call('EXPIRE', key, math.ceil((b - held[i] + cost) / a) + 60)
  elseif kind == 's' then
    redis.call('ZADD', key, now + tonumber(ARGV[2]), ARGV[1])
    redis.call('PEXPIRE', key, math.ceil(tonumber(ARGV[2]) / 1000) + 1000)
  else
    local number, ends = period_of(kind)
    local sum, open = string.format('%.0f', held[i] + cost), string.format('%.0f', reserved[i] + cost)
    redis.call('HSET', key, 'period', number, 'sum', sum, 'reserved', open)
    redis.call('EXPIREAT', key, ends + 86400)
  end
end
redis.call('SET', KEYS[1], 'taken', 'PX', ARGV[3])
return {0}
