package main

import (
	"os"
	"runtime"
	"runtime/pprof"
)

var scratch []byte
var kept [][]byte

//go:noinline
func keep(n int) { kept = append(kept, make([]byte, n)) }

func main() {
	runtime.MemProfileRate = 1
	for i := 0; i < 40; i++ { keep(65536) }
	for i := 0; i < 100; i++ { scratch = make([]byte, 16384) }
	runtime.GC()
	f, _ := os.Create("go.pb.gz")
	pprof.WriteHeapProfile(f)
	f.Close()
}
