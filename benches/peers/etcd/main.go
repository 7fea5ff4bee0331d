// The driver of etcd's own Lock service for `beside`; what a driver does is said in `benches/driver/src/bin/beside/peer.rs`.
// The service takes a lease for an owner: each task has one of its own, or two of them would be one owner.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

type task struct {
	service v3lockpb.LockClient
	lease   clientv3.LeaseID
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (t task) lock(key int, body time.Duration) {
	ctx := context.Background()
	name := []byte(fmt.Sprintf("bench-%d", key))
	held, err := t.service.Lock(ctx, &v3lockpb.LockRequest{Name: name, Lease: int64(t.lease)})
	must(err)
	if body > 0 {
		time.Sleep(body)
	}
	_, err = t.service.Unlock(ctx, &v3lockpb.UnlockRequest{Key: held.Key})
	must(err)
}

func main() {
	addr := flag.String("addr", "", "host:port")
	clients := flag.Int("clients", 1, "connections")
	each := flag.Int("tasks", 1, "tasks of each")
	keys := flag.Int("keys", 1, "locks")
	body := flag.Int("body-us", 0, "for how long each is held")
	seconds := flag.Int("seconds", 2, "for how long")
	flag.Parse()
	var tasks []task
	for c := 0; c < *clients; c++ {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{*addr}})
		must(err)
		service := v3lockpb.NewLockClient(client.ActiveConnection())
		for n := 0; n < *each; n++ {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
			must(err)
			t := task{service, session.Lease()}
			t.lock(0, 0)
			tasks = append(tasks, t)
		}
	}
	fmt.Println("READY")
	bufio.NewReader(os.Stdin).ReadString('\n')
	start := time.Now()
	stop := start.Add(time.Duration(*seconds) * time.Second)
	locks, worst := make([]int, len(tasks)), make([]time.Duration, len(tasks))
	var all sync.WaitGroup
	for n, t := range tasks {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(stop) {
				asked := time.Now()
				t.lock(locks[n]%*keys, time.Duration(*body)*time.Microsecond)
				worst[n] = max(worst[n], time.Since(asked))
				locks[n]++
			}
		}()
	}
	all.Wait()
	took, longest := time.Since(start), time.Duration(0)
	for _, w := range worst {
		longest = max(longest, w)
	}
	fmt.Print(took.Microseconds(), " ", longest.Microseconds())
	for _, n := range locks {
		fmt.Print(" ", n)
	}
	fmt.Println()
}
