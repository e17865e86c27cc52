/* Written by tests/peers/gptq.py: GPTQ in float64. */
enum { ROWS = 4, INPUTS = 320, GROUP = 32, TOKENS = 400 };
/* in_order: each code + 8 as a letter; the outputs' error. */
static const char *const in_order_codes[ROWS] = {
    "glfgnioojpnpghffjibbbbjolikchhnpjmekffebckphbegeanbkmoimpgepcmbchpicnghhkneoigek"
    "dmpkhombfkgnmfanihicdmfoefbdgkhddfopfkepgidkmmpmgdliimncgjjkafngffmgkmhleobdikhn"
    "goilolopjbdcjlmcpmhbejcockdllikjgeepbkggkadeokcebpmmokkoegbogfbbkpghhkphlijfhddl"
    "hekbmmoejjhjegockofmgdlcpglbfcmhfdmpbcooklogejgdhlbkkeoonilklpdkdkcogelflmhejjld",
    "hebhoinbpimbecokfmdgddgibpcecbfeigieicmphkooebfkodnpnpjhddpgmhcpjmijihjcdhdfnjbb"
    "oimdcghfmpdnbpgnhpilkdmclplpnpeiiejonekbmpnkdodejigfipbmgegcnmhhfnnndmfahkkknckp"
    "khfoelonbpemdolmofddfjokadnonilljaggmnacnoeenilofmeibofeflcdjkifickenmllmjdohgcd"
    "ipkfokggodjnpenmhhpmmjjkhfcfhflgclgkokmlbgoangpogljmklpcfgklpjfihhgofpcponacoigd",
    "kfdheiggilnppoenkjpfloapoblibgihiknodgbnpffipbjiggijfpdhohmlifjejmhhkgknpnnjfiia"
    "cnfchgeljcoflkbnikmglecbcoelpnnmcaomnejkgamcfcdnkelgncpcbpdcldneehhbbknigcbldbcn"
    "kcookegkoddmplgceaecffhigoiedpggiogieijjlmpppdkchohlknpdpalhoklggpjcfnlopkdmkkdb"
    "nkhampjnepcjldokjegjllcgdkeohidpgafabjbbilglfhfbidglfmmgffpgoehkigdfmdikchbdkpoo",
    "jiekhiophehepcpgfgenilfemciepeachojgljfjklimhkdeamifcckmfhejhkeajbpgihghknhpmffk"
    "cncpmndpoblgbddphfnmccmdalkhehkmddbljmkcnffkdddhjanceooemdiglehgbnfpcckdmhgmfcmm"
    "hegkkncgppgknlmononnoddgfmenddemhppfionhckjhclnoofjpdpgdhddlmfdchboipklckihmhppf"
    "jmhjmhgoighghgmkkblekpmikmbfncnnoneiffgbmbgofelbiikedoiklkndiiojhnpdchednodkehkj",
};
static const double in_order_error = 2.2852227174;
/* by_size: each code + 8 as a letter; the outputs' error. */
static const char *const by_size_codes[ROWS] = {
    "glfgniookpmpggffkibbbbjomijcignpjmfkefebcjphcdfeanbknoimpgepcmbbhpicnghijoeoihdl"
    "dmpkhplbfkgnneanhhidcnepdfbcglicdfopfjepgidkmmpmhdkihmocgjkjafmgfgmgkmgndoccjkhn"
    "gohmolnpjccckkmcpmgbekbpbjflkikjheeobkggkbcfokcebommokkoffbogfcbkngiijpgmhjggecl"
    "hfjbnmnfijjieinckpdmhdkdpglbgbmhfemobboolkohejfdgmakkfopmimjmpclblbphelemmgfjjlc",
    "hebhoincphmbecokgmchddficpcfcbfdjgididmpgloodbgkocnpopjidcpfohbpjmjjihjccidfnibc"
    "oildcghenpembpgmjpikkdmdkplonpdiifionelbmpmlcpcejigfipcmgdgbpmiheonnemecgklkobkp"
    "khfoemonbpdmdomlofecfkokbdmoojklibggmnacnodfnjkpemeibngeemcdjkifibkennklnidpggde"
    "ipifnkghodiopdolhhpnlljkhfbfhelgclflplmmagnbofpphljmklocghklpjeiihgogpbpombcnigd",
    "kfeheiggjlnppnenkjpflnbppblibghhhmnndgbnpffjobjiggijfoehnimlifjejmhhlgknpnnkeihb"
    "bogbieelkcoflkbnikmhldcbcoempmolcbolnejkgbmbfcdojfkgocpcbpccmcodehhbaknigbbldbcn"
    "kconlegkodcmplgcfaecffhjfnigdoggjofjeijjmmpppdjcgphlknpcpclgpkmggojbhmmopkdmjkdb"
    "okfanpjoeodjldnkjfgjkkdgckfohgepfbeabibbilgmfghbidgkfmmgffpgoejkhgdfmdhkdiadkpoo",
    "khfkhiopgeieoepffgenjlfemciepeachojgljfjklimfkeeblifbcllfhejhkdbjbogjhghknhpmffj"
    "cncpmndppblgbddphfnnbcmdalkidhkndcbkjnlboefkddbhkancfonemdigmehgbnfpcckdmigmedlm"
    "hegkjpchpphjoknnmpnnpdchfmenecdnippeionhcjkgcmnoofjpdohdhddlmeedgbpiokldlhgnipof"
    "klhjnhgohgihggnjkblfkoljjmbgmcnnomfifggamchnfekcgilddpiklkodiiojhopcdhecoockehkl",
};
static const double by_size_error = 2.14804586253;
static const double nearest_error = 8.02861727492;
