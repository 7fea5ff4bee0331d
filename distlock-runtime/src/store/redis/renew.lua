-- Extends the lock only if this token owns it; never creates it, never shortens it (Redis 6.2 has
-- no PEXPIRE GT). KEYS[1] lock, ARGV[1] token, ARGV[2] time to live in ms.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
