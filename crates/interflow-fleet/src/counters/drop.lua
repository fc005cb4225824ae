-- Gives slots back. KEYS: the slots' counters. ARGV: for each counter the lease that held a slot in it.
for i, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[i]) end
return 0
