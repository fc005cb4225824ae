-- Keeps slots taken for another lease. KEYS: the slots' counters. ARGV: microseconds of a lease, then for each counter
-- the lease that holds a slot in it. A slot that ran out, or that the server lost, is taken anew: its request is under way.
local t = redis.call('TIME')
local until_then = tonumber(t[1]) * 1000000 + tonumber(t[2]) + tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, until_then, ARGV[1 + i])
  redis.call('PEXPIRE', key, math.ceil(tonumber(ARGV[1]) / 1000) + 1000)
end
return 0
