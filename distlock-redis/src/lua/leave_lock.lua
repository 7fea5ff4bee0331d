-- What `free_lock` is to a token that has the lock alone, this is to one that holds it with others. The last one
-- takes the lock with it, which may not be touched any more then.
-- (`pcall`: an exclusive lock is no sorted set. Any other refusal is an error, because the token may hold the lock.)
local till = redis.pcall('ZSCORE', KEYS[1], ARGV[1])
if type(till) == 'table' and not string.find(till.err, 'WRONGTYPE', 1, true) then
  till = redis.call('ZSCORE', KEYS[1], ARGV[1])
end
if type(till) ~= 'string' then
  return 0
elseif redis.call('ZCARD', KEYS[1]) == 1 then
  return redis.call('DEL', KEYS[1])
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2])
return 1
