-- Nobody waits: compare and delete, and nothing else.
if #ARGV == 1 and redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
