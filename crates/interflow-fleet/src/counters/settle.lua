-- Puts what was used in place of what was taken, and gives slots back, once for each lease. KEYS: the lease's state, then
-- the counters. ARGV: lease, seconds since they were taken from, milliseconds for which its state is kept, 1 if it is not
-- known whether the counters were taken from at all, then for each counter its kind, two numbers, what was taken and what
-- was used.
local state = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'ended', 'PX', ARGV[3])
if state == 'ended' or (ARGV[4] == '1' and state ~= 'taken') then return 0 end

local t = redis.call('TIME')
local taken = math.floor((tonumber(t[1]) - tonumber(ARGV[2])) / 86400)

for i = 1, #KEYS - 1 do
  local key = KEYS[i + 1]
  local at = 4 + (i - 1) * 5
  local kind, a, b = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local cost = tonumber(ARGV[at + 4])
  local more = tonumber(ARGV[at + 5]) - cost
  if kind == 's' then
    redis.call('ZREM', key, ARGV[1])
  elseif kind == 'b' then
    if more ~= 0 then
      local held = redis.call('HGET', key, 'held')
      -- A bucket that was forgotten meanwhile was full; what is owed beyond the estimate is owed still.
      held = (tonumber(held) or b) - more
      redis.call('HSET', key, 'held', string.format('%.6f', held))
      redis.call('HSETNX', key, 'at', string.format('%.0f', tonumber(t[1]) * 1000000 + tonumber(t[2])))
      redis.call('EXPIRE', key, math.max(1, math.ceil((b - held) / a) + 60))
    end
  else
    -- A budget whose period has ended since never held what it is to be corrected by.
    local kept = redis.call('HMGET', key, 'period', 'sum', 'reserved')
    if tonumber(kept[1]) == (kind == 'd' and taken or month_of(taken)) then
      local sum, reserved = math.max(0, tonumber(kept[2]) + more), math.max(0, (tonumber(kept[3]) or 0) - cost)
      redis.call('HSET', key, 'sum', string.format('%.0f', sum), 'reserved', string.format('%.0f', reserved))
    end
  end
end
return 0
