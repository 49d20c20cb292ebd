package workers_test

const processURL = "WEIR_TEST_WORKER_URL"

func beWorker() int { return 0 }
