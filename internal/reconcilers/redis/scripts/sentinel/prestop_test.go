// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sentinel

import (
	"maps"
	"regexp"
	"strings"
	"testing"
)

const (
	primaryInfo = "role:master\nconnected_slaves:2\nslave0:ip=10.0.0.11,port=6379,state=online,offset=90\nslave1:ip=10.0.0.12,port=6379,state=online,offset=90\nmaster_repl_offset:90\n"
	calm        = "name\nmymaster\nflags\nmaster\nconfig-epoch\n3"
	replicas    = "name\na\nip\n10.0.0.11\nflags\nslave\ninfo-refresh\n500\nslave-priority\n100\nname\nb\nip\n10.0.0.12\nflags\nslave\ninfo-refresh\n500\nslave-priority\n100"
	// moves has the voter name another primary once it was asked for a failover.
	moves = `printf '10.0.0.12\n6379\n' >"$ANSWERS/10.0.0.11 26379 sentinel get-master-addr-by-name mymaster"`
)

// handOver is what everybody says when nothing is in the way.
func handOver() map[string]string {
	return map[string]string{
		"127.0.0.1 6379 info replication": primaryInfo,
		"10.0.0.11 26379 " + whom:         "10.0.0.10\n6379", "10.0.0.12 26379 " + whom: "10.0.0.10\n6379", "10.0.0.10 26379 " + whom: "10.0.0.10\n6379",
		"10.0.0.11 26379 sentinel master mymaster":      calm,
		"10.0.0.11 26379 sentinel replicas mymaster":    replicas,
		"10.0.0.11 6379 info replication":               sync,
		"10.0.0.12 6379 info replication":               sync,
		"10.0.0.11 26379 sentinel failover mymaster":    "OK",
		"on 10.0.0.11 26379 sentinel failover mymaster": moves,
	}
}

func TestPrestopRedis(t *testing.T) {
	const failover = "26379 sentinel failover mymaster"
	var (
		handsOver = []string{"127.0.0.1 6379 config set repl-ping-replica-period 3600", "127.0.0.1 6379 client pause 40000 write", "10.0.0.11 " + failover, "10.0.0.11 6379 replicaof 10.0.0.12 6379", "127.0.0.1 6379 replicaof 10.0.0.12 6379", "127.0.0.1 6379 client kill type normal"}
		never     = []string{failover, "client pause 40000 write"}
	)
	for name, tc := range map[string]struct {
		answers map[string]string
		without []string
		set     []string
		says    string
		asks    []string
		not     []string
	}{
		"a primary":             {says: "handed over to 10.0.0.12", asks: handsOver, not: []string{"client unpause"}},
		"a replica":             {answers: map[string]string{"127.0.0.1 6379 info replication": sync}, says: "not the primary", asks: []string{"127.0.0.1 6379 config set replica-priority 0"}, not: never},
		"no addresses":          {set: []string{"ADDRESSES="}, says: "the addresses of the Pods are not recorded", not: never},
		"no replica":            {answers: map[string]string{"127.0.0.1 6379 info replication": "role:master\nconnected_slaves:0"}, says: "no replica to hand over to", not: never},
		"a replica that copies": {answers: map[string]string{"127.0.0.1 6379 info replication": strings.ReplaceAll(primaryInfo, "online", "send_bulk")}, says: "no replica to hand over to", not: never},
		"no voter":              {without: []string{"10.0.0.10 26379 " + whom, "10.0.0.11 26379 " + whom, "10.0.0.12 26379 " + whom}, says: "no sentinel takes this Pod for the primary", not: never},
		"its own voter only": {without: []string{"10.0.0.11 26379 " + whom, "10.0.0.12 26379 " + whom}, answers: map[string]string{
			"10.0.0.10 26379 sentinel master mymaster": calm, "10.0.0.10 26379 sentinel replicas mymaster": replicas, "10.0.0.10 " + failover: "OK", "on 10.0.0.10 " + failover: strings.ReplaceAll(moves, "10.0.0.11 26379", "10.0.0.10 26379"),
		}, says: "handed over to 10.0.0.12", asks: []string{"10.0.0.10 " + failover}},
		"another failover under way": {answers: map[string]string{"10.0.0.11 26379 sentinel master mymaster": strings.ReplaceAll(calm, "flags\nmaster", "flags\nmaster,failover_in_progress")}, says: "no replica that the sentinels would promote", not: never},
		"replicas that are down":     {answers: map[string]string{"10.0.0.11 26379 sentinel replicas mymaster": strings.ReplaceAll(replicas, "flags\nslave", "flags\nslave,s_down")}, says: "no replica that the sentinels would promote", not: never},
		"replicas with no priority":  {answers: map[string]string{"10.0.0.11 26379 sentinel replicas mymaster": strings.ReplaceAll(replicas, "priority\n100", "priority\n0")}, says: "no replica that the sentinels would promote", not: never},
		"replicas that end as well": {answers: map[string]string{
			"10.0.0.11 26379 sentinel replicas mymaster": "x", "on sleep": `printf 'role:master\nconnected_slaves:0\n' >"$ANSWERS/127.0.0.1 6379 info replication"`,
		}, says: "no replica that the sentinels would promote", not: never},
		"no moment that is good":        {answers: map[string]string{"10.0.0.11 26379 sentinel replicas mymaster": strings.ReplaceAll(replicas, "refresh\n500", "refresh\n900")}, says: "handed over to 10.0.0.12", asks: handsOver},
		"no waiting for the moment":     {set: []string{"ALIGN=false"}, answers: map[string]string{"10.0.0.11 26379 sentinel replicas mymaster": strings.ReplaceAll(replicas, "refresh\n500", "refresh\n900")}, says: "handed over to 10.0.0.12", asks: handsOver},
		"a replica that lags":           {answers: map[string]string{"10.0.0.12 6379 info replication": lags}, says: "a replica lags, ending without a hand-over", asks: []string{"127.0.0.1 6379 client pause 40000 write", "127.0.0.1 6379 client unpause"}, not: []string{failover}},
		"a replica that catches up":     {answers: map[string]string{"10.0.0.12 6379 info replication": lags, "on sleep": `printf 'role:slave\nslave_repl_offset:91\n' >"$ANSWERS/10.0.0.12 6379 info replication"`}, says: "handed over to 10.0.0.12", asks: handsOver},
		"a voter that refuses at first": {answers: map[string]string{"10.0.0.11 " + failover: "INPROG Failover already in progress", "on 10.0.0.11 " + failover: `printf 'OK\n' >"$ANSWERS/10.0.0.11 26379 sentinel failover mymaster"; printf '%s\n' ` + "'" + `printf "10.0.0.12\n6379\n" >"$ANSWERS/10.0.0.11 26379 sentinel get-master-addr-by-name mymaster"` + "'" + ` >"$ANSWERS/on 10.0.0.11 26379 sentinel failover mymaster"`}, says: "handed over to 10.0.0.12", asks: handsOver},
		"a voter that refuses":          {answers: map[string]string{"10.0.0.11 " + failover: "NOGOODSLAVE No suitable replica to promote", "on 10.0.0.11 " + failover: ":"}, says: "no replica took over", asks: []string{"10.0.0.11 " + failover}, not: []string{"client kill type normal"}},
		"a promotion that fails":        {answers: map[string]string{"on 10.0.0.11 " + failover: ":"}, says: "no replica took over", asks: []string{"10.0.0.11 " + failover}, not: []string{"client kill type normal"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, "0")
			p.env["PATIENCE"] = "1000"
			all := handOver()
			maps.Copy(all, tc.answers)
			for _, request := range tc.without {
				delete(all, request)
			}
			p.answers(all)
			p.set(tc.set...)
			output, code := p.run("prestop-redis.sh")
			said := regexp.MustCompile(` \(ms:( [a-z]+ \d+)+\)\n$`).ReplaceAllString(p.read("message"), "")
			if code != 0 || said != "preStop: "+tc.says {
				t.Errorf("exit code %d, said %q, want %q\n%s", code, said, tc.says, output)
			}
			if p.read("run/leaving") == "" || p.read("run/stopped") == "" {
				t.Error("the marks are not set")
			}
			asked := p.read("answers/asked")
			for _, request := range tc.asks {
				_, after, found := strings.Cut(asked, request)
				if !found {
					t.Errorf("not asked, or not in this order: %q", request)
					continue
				}
				asked = after
			}
			for _, request := range tc.not {
				if p.asked(request) {
					t.Errorf("asked: %q", request)
				}
			}
			if name == "a promotion that fails" && strings.Count(p.read("answers/asked"), failover) != 1 {
				t.Error("a voter that said OK was asked again, which is another failover")
			}
			if t.Failed() {
				t.Log(p.read("answers/asked"))
			}
		})
	}
}
