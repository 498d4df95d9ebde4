// Reads a trace from Jaeger's query API and prints it as a tree: `tree http://HOST:PORT TAG=VALUE...` looks for the youngest trace
// of the operator with a span that has these tags. It ends with 1 while there is none.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sort"
	"strings"
	"time"
)

const service = "podset-operator"

// What of Jaeger's answer is looked at.
type answer struct {
	Data []trace `json:"data"`
}

type trace struct {
	TraceID   string             `json:"traceID"`
	Spans     []span             `json:"spans"`
	Processes map[string]process `json:"processes"`
}

type process struct {
	ServiceName string `json:"serviceName"`
}

type span struct {
	SpanID        string      `json:"spanID"`
	OperationName string      `json:"operationName"`
	References    []reference `json:"references"`
	StartTime     int64       `json:"startTime"`
	Duration      int64       `json:"duration"`
	Tags          []tag       `json:"tags"`
	ProcessID     string      `json:"processID"`
}

type reference struct {
	RefType string `json:"refType"`
	TraceID string `json:"traceID"`
	SpanID  string `json:"spanID"`
}

type tag struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

// The tags that are worth a place in the tree, in this order.
var shown = []string{
	"controller", "object.namespace", "object.name", "object.generation", "trigger", "outcome",
	"plan.live", "plan.wanted", "plan.create", "plan.delete", "plan.hold", "pods.created", "pods.deleted",
	"http.response.status_code", "otel.status_description",
}

func main() {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "http") {
		fail("usage: tree http://HOST:PORT TAG=VALUE...")
	}
	found, err := find(os.Args[1], os.Args[2:])
	if err != nil {
		fail(err.Error())
	}
	if found == nil {
		fmt.Fprintln(os.Stderr, "tree: no such trace yet")
		os.Exit(1)
	}
	found.print()
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, "tree:", reason)
	os.Exit(2)
}

func find(server string, wanted []string) (*trace, error) {
	tags := map[string]string{}
	for _, pair := range wanted {
		key, value, _ := strings.Cut(pair, "=")
		tags[key] = value
	}
	encoded, err := json.Marshal(tags)
	if err != nil {
		return nil, err
	}
	query := url.Values{"service": {service}, "tags": {string(encoded)}, "limit": {"20"}, "lookback": {"1h"}}
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(server + "/api/traces?" + query.Encode())
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("Jaeger answers %s", response.Status)
	}
	var all answer
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		return nil, err
	}
	var youngest *trace
	for i := range all.Data {
		if youngest == nil || all.Data[i].start() > youngest.start() {
			youngest = &all.Data[i]
		}
	}
	return youngest, nil
}

func (t *trace) start() int64 {
	first := int64(0)
	for _, span := range t.Spans {
		if first == 0 || span.StartTime < first {
			first = span.StartTime
		}
	}
	return first
}

func (t *trace) print() {
	sort.SliceStable(t.Spans, func(i, j int) bool { return t.Spans[i].StartTime < t.Spans[j].StartTime })
	known := map[string]bool{}
	for _, span := range t.Spans {
		known[span.SpanID] = true
	}
	children := map[string][]span{}
	for _, span := range t.Spans {
		parent := span.parent()
		if !known[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], span)
	}
	fmt.Println("trace", t.TraceID)
	t.printBelow(children, "", 0)
}

func (t *trace) printBelow(children map[string][]span, parent string, depth int) {
	for _, span := range children[parent] {
		name := t.Processes[span.ProcessID].ServiceName + ": " + span.OperationName
		fmt.Printf("%-96s %8.1f ms%s\n", strings.Repeat("  ", depth)+name, float64(span.Duration)/1000, span.said())
		for _, link := range span.References {
			if link.RefType != "CHILD_OF" {
				fmt.Printf("%s  first seen in trace %s\n", strings.Repeat("  ", depth), link.TraceID)
			}
		}
		t.printBelow(children, span.SpanID, depth+1)
	}
}

func (s span) parent() string {
	for _, reference := range s.References {
		if reference.RefType == "CHILD_OF" {
			return reference.SpanID
		}
	}
	return ""
}

func (s span) said() string {
	values := map[string]string{}
	for _, tag := range s.Tags {
		values[tag.Key] = fmt.Sprint(tag.Value)
	}
	text := ""
	for _, key := range shown {
		if value, ok := values[key]; ok {
			text += "  " + key[strings.LastIndex(key, ".")+1:] + "=" + value
		}
	}
	return text
}
