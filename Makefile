help: ## list targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

test: ## all tests of the workspace
	go test github.com/idem-go/idem/...

proof: ## all rigs: deaths, power cuts, full disks, bad networks, everything at once, random programs
	cd proof && GOWORK=off go test ./...

race: ## the same with the race detector
	go test -race github.com/idem-go/idem/...

crash: ## every crash point in every kind of call
	cd proof && IDEM_CRASH=all GOWORK=off go test -race ./crash

power: ## power cuts: every operation cut off in each way IDEM_POWER (default 5) times, and on real file systems
	cd proof && IDEM_POWER=$${IDEM_POWER:-5} GOWORK=off go test -timeout 30m -v -run 'PowerCut|LostSync|DoesntSync|TornWithin|CutOff' ./disk

stress: ## all calls at once, 10,000 of them
	cd proof && IDEM_STRESS=all GOWORK=off go test -race -v ./stress

network: ## toxiproxy, resending proxies, restarts, DNS, over real sockets
	cd proof && GOWORK=off go test -race -v ./network

model: ## random programs against the model: STEPS calls (default 1000000)
	cd proof && IDEM_STEPS=$${STEPS:-1000000} GOWORK=off go test -v -count=1 -timeout 0 -run RandomPrograms ./model

sim: ## concurrent programs over a store that fails and a provider in all weather: STEPS calls (default 1000000) from SEED (default 1)
	cd proof && IDEM_STEPS=$${STEPS:-1000000} IDEM_SEED=$${SEED:-1} GOWORK=off go test -v -count=1 -timeout 0 -run RandomConcurrent ./sim

mutants: ## break the library in 18 ways, each of which a test must notice
	cd proof && IDEM_MUTANTS=all GOWORK=off go test -v -count=1 -timeout 90m -run MutantsAreNoticed ./model

soak: ## all kinds of calls through faults and kills, for 10 minutes
	go run ./cmd/idem soak --for 10m

fuzz: ## every fuzz target for FUZZTIME (default 5m) each
	FUZZTIME=$${FUZZTIME:-5m} bash .ci/fuzz

lint: ## vet, gofmt, staticcheck
	bash .ci/lint

ci: ## what decides whether a change lands
	bash .ci/run

.PHONY: help test proof race crash power stress network model sim mutants soak fuzz lint ci
